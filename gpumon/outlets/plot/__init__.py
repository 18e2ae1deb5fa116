"""Pictures of a log, drawn by matplotlib, and the page that holds one."""
