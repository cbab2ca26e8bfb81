"""Why a flow behaved as it did: limits, verdicts, agreement with the kernel; no drawing here."""
