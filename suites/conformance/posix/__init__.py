"""Does a mount keep what POSIX promises of files? The cases run on the client."""
