"""`python -m acs_aaep_bridge` is the same as the `acs-aaep-bridge` command."""

from acs_aaep_bridge.cli import main

if __name__ == "__main__":
    main()
