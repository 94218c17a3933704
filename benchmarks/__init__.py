"""How fast it is: `make bench`. The core alone, each stage and the whole on real Kafka, and a bare copy beside them."""
