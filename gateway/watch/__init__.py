"""What an operator sees of running requests: events, who gets them, and the page that shows them."""
