"""What people and programs see; none of these imports another."""
