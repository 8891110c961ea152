"""One file per command: it reads its options, calls the packages below and prints the result."""
