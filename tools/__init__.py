"""The gates that `make` runs over this repository; never part of the package."""
