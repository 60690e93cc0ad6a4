"""What aiokc's producer has written, as other programs see it: consumers, and Kafka's own tools on its log files."""
