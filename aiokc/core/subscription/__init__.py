"""What a consumer reads: its subscription, its assignment, and the position of each assigned partition."""
