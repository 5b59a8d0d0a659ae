"""The checks that `make` runs on this repository; not part of the package."""
