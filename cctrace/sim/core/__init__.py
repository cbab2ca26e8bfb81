"""The packet-level simulation: plain functions over numpy records, run interpreted or compiled (`lang.machine`)."""
