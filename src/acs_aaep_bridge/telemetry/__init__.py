"""What the bridge tells its operators: metrics, logs and health."""
