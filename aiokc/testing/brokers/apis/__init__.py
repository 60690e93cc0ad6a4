"""The handlers: one module for each family of APIs, and the table of all of them."""
