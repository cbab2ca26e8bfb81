"""Place of capture, one judgement per connection: at the sender, at the receiver, between them, or unknown.

    sender ----- capture ------------------------ receiver
           near           far: from data to their acknowledgement, at the capture

`near` is the round trip from the capture to the sender: the shortest in which the sender echoed a time stamp that
had passed the capture; without time stamps, its response time in the handshake. Below 300 us, or a twentieth of
`far`, it cannot be distinguished from the sender's own reaction, unless the receiver reacts several times faster.

Confidence:

    measured    by time stamps or the handshake
    likely      a time stamp that passed the capture has not been echoed for longer than twenty times `far`
    assumed     at the sender: its distance is unknown, but the receiver is a millisecond or more away
    none        unknown
"""

import numpy as np

from cctrace.columns import Ints

SENDER, MIDDLE, RECEIVER, UNKNOWN = range(4)
PLACES = ("sender", "middle", "receiver", "unknown")
MEASURED, LIKELY, ASSUMED, NONE = range(4)
CONFIDENCE = ("measured", "likely", "assumed", "none")
REACTION_NS = 300_000  # up to which a round trip to the sender may be its own reaction
FAR_AWAY_NS = 1_000_000


def judge(near_ns: Ints, waiting_ns: Ints, far_ns: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the places of capture, their confidence, and the round trip to the sender (0: taken at it).

    `near_ns`: measured round trip from the capture to the sender, 0 unknown. `waiting_ns`: for how long the
    sender had not echoed a time stamp that passed the capture. `far_ns`: shortest time from data to their
    acknowledgement, 0 unknown.
    """
    distant = (near_ns > REACTION_NS) & (near_ns > far_ns // 20)
    distant |= (near_ns > 5_000) & (near_ns > 4 * far_ns) & (far_ns > 0)
    late = (near_ns == 0) & (waiting_ns > REACTION_NS) & (far_ns > 0) & (waiting_ns > 20 * far_ns)
    at_receiver = distant & (far_ns > 0) & (far_ns < near_ns // 20) | late
    far_away = (near_ns == 0) & (far_ns >= FAR_AWAY_NS)
    at_sender = ~distant & ~late & ((near_ns > 0) | far_away)
    place = np.where(at_receiver, RECEIVER, np.where(distant, MIDDLE, np.where(at_sender, SENDER, UNKNOWN)))
    confidence = np.where(near_ns > 0, MEASURED, np.where(late, LIKELY, np.where(far_away, ASSUMED, NONE)))
    return place, confidence, np.where(distant, near_ns, np.where(late, waiting_ns, 0))
