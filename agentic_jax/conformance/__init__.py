"""One suite for every slot function, shipped or user-made: see __main__."""
