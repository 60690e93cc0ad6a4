"""What `aiokc lag` computes and shows: rows, sums, rates, the check, and the live view."""
