"""Every threshold that decides what a user is shown, with its unit and origin."""
