"""What-if: the performance of another controller, or over another path."""
