"""Groups of the classic protocol, as their coordinator sees them."""
