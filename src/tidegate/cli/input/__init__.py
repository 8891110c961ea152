"""What commands read: shared options, durations, files, and the client of a gateway that the options describe."""
