"""Why a flow behaved as it did: facts, limits, events, and the rules that name causes."""
