"""One partition in the fetch buffer: its batches as they arrived, the memory that they lie in, the records of them."""
