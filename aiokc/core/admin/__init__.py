"""The pure part of administration: requests made of arguments, values read from answers, plans of a reset."""
