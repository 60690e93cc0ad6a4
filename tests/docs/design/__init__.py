"""The pages about the code itself: what of them is generated, and that they are true."""
