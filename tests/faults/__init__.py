"""What must hold when things die: processes and brokers are killed, frozen and cut off, and every record is accounted for."""
