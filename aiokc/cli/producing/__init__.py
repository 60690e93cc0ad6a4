"""What ``aiokc produce`` sends: records out of lines, JSON and files, and what became of them."""
