"""Problems: reading, mixing and making them."""
