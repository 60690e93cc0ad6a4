"""Small wrong changes to the code, one at a time: do the fast tests see them?"""
