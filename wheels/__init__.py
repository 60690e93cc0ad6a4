"""The wheels: built, given the list of what they contain, and tested. The package needs only the standard library."""
