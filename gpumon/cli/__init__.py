"""One file a command: it parses words, builds objects and chooses exit codes."""
