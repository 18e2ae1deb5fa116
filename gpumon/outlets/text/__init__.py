"""Reports as people read them in a terminal: three lines that say it all, then the tables."""
