"""What a finished log shows beyond its totals: lanes, common pauses of GPUs, held memory."""
