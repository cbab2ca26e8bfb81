"""The row loop: calls of a controller over a recorded flow, the Linux stack around it, trials and branches of a run."""
