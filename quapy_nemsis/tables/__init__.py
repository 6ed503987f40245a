"""Tables of users: files that are read and checked, what their columns are, and the numbers made of them."""
