"""What the Linux stack itself does to cwnd and ssthresh, around a controller that is replayed over a recorded flow.

A replay carries the controller's own outputs from call to call; between the calls the stack writes them too:

    ==================  ==============================================================  ============================
    call                what the stack does                                             [Linux618] net/ipv4
    ==================  ==============================================================  ============================
    ssthresh            remembers cwnd and ssthresh for an undo; snd_cwnd_cnt = 0       tcp_init_cwnd_reduction
    set_state Loss      cwnd = in flight + 1; snd_cwnd_cnt = 0                          tcp_enter_loss
    undo_cwnd           ssthresh is at least what it was before the reduction           tcp_undo_cwnd_reduction
    ------------------  --------------------------------------------------------------  ----------------------------
                        only for a controller without on_ack:
    on_ack              in Recovery and CWR: proportional rate reduction                tcp_cwnd_reduction
    set_state Recovery  upon RACK's timer: the same for one segment                     tcp_rack_reo_timeout
    COMPLETE_CWR        cwnd = ssthresh, unless the reduction was undone                tcp_end_cwnd_reduction
    CWND_RESTART        cwnd halves for every RTO idle, down to the initial window      tcp_cwnd_restart
    ==================  ==============================================================  ============================

`on_stack(cls)` is the class with these around its entry points, so that it runs compiled and interpreted like any
other. What was sent in a recovery, in flight and delivered is the recording's; ssthresh is the controller's.

Left out: tcp_cwnd_application_limited. It waits for an RTO after the last ACK that let cwnd grow, and by then either
nothing is outstanding (CWND_RESTART) or the retransmission timer has fired. An undo that may not restore cwnd (after
an ECN echo) leaves no trace in the event stream: cwnd then ends at ssthresh, too.

Sources: [Linux618] net/ipv4/tcp_input.c, tcp_output.c, tcp_recovery.c; RFC 6937 (PRR), RFC 2861 (idle restart).
"""

from functools import lru_cache

from cctrace.cc.base import LinuxController
from cctrace.cc.linux import (
    CA_CWR,
    CA_LOSS,
    CA_RECOVERY,
    EVENT_COMPLETE_CWR,
    EVENT_CWND_RESTART,
    TCP_INFINITE_SSTHRESH,
    TCP_INIT_CWND,
    USEC_PER_SEC,
)

RTO_MIN_PER_SEC = 5  # TCP_RTO_MIN is 200 ms


@lru_cache(maxsize=256)
def on_stack(cls):
    """Return a Linux controller class as the stack of Linux 6.18 would run it: with the stack's own writes.

    Examples
    --------
    >>> from cctrace.cc.reno import Reno
    >>> on_stack(Reno).__mro__[1].__name__
    'ReducingStack'
    """
    stack = Stack if hasattr(cls, "on_ack") else ReducingStack
    return type(cls.__name__, (stack, cls, Silent), {"__module__": cls.__module__, "__doc__": cls.__doc__})


class Silent(LinuxController):
    """Last in the order of resolution: the entry points that the stack wraps, for a class that lacks them."""

    def ssthresh(self, ack):
        """Leave it."""
        return self.snd_ssthresh

    def undo_cwnd(self, ack):
        """Leave it."""
        return self.snd_cwnd

    def set_state(self, ack):
        """Do nothing."""

    def cwnd_event(self, ack):
        """Do nothing."""


class Stack(LinuxController):
    """What happens to every controller; see the module's header."""

    stack_prior_cwnd: int = 0  # tp->prior_cwnd
    stack_prior_ssthresh: int = 0  # tp->prior_ssthresh

    def prior_cwnd_of_stack(self, ack):
        """As this replay had it, which no recording shows."""
        return self.stack_prior_cwnd

    def ssthresh(self, ack):
        """Remember what an undo restores [Linux618] tcp_enter_recovery, tcp_enter_loss, tcp_init_cwnd_reduction."""
        self.stack_prior_ssthresh = self.snd_ssthresh
        if ack.ca_state != CA_CWR and ack.ca_state != CA_RECOVERY:
            self.stack_prior_ssthresh = self.current_ssthresh()
        self.stack_prior_cwnd = self.snd_cwnd
        self.snd_cwnd_cnt = 0
        return super().ssthresh(ack)

    def set_state(self, ack):
        """A timeout leaves one segment to send, before the controller hears of it [Linux618] tcp_enter_loss."""
        if ack.arg == CA_LOSS:
            self.snd_cwnd = self.packets_in_flight(ack) + 1
            self.snd_cwnd_cnt = 0
        super().set_state(ack)

    def undo_cwnd(self, ack):
        """[Linux618] tcp_undo_cwnd_reduction."""
        cwnd = super().undo_cwnd(ack)
        self.snd_ssthresh = max(self.snd_ssthresh, self.stack_prior_ssthresh)
        return cwnd

    def current_ssthresh(self):
        """Three quarters of cwnd at least [Linux618] tcp_current_ssthresh, outside of a reduction."""
        return max(self.snd_ssthresh, (self.snd_cwnd >> 1) + (self.snd_cwnd >> 2))


class ReducingStack(Stack):
    """What happens to a controller without on_ack besides; see the module's header."""

    stack_prr_delivered: int = 0  # tp->prr_delivered
    stack_sent_before: int = 0  # tp->data_segs_out when the reduction began; what exceeds it is tp->prr_out
    stack_snd_una: int = 0  # tp->snd_una after the previous ACK
    stack_can_undo: bool = False  # tp->undo_marker != 0

    def ssthresh(self, ack):
        """Begin to count what a reduction delivers and sends [Linux618] tcp_init_cwnd_reduction."""
        self.stack_prr_delivered = 0
        self.stack_sent_before = ack.data_segs_out
        return super().ssthresh(ack)

    def set_state(self, ack):
        """Upon RACK's timer (the only entry into Recovery without an ACK), reduce at once."""
        super().set_state(ack)
        if ack.arg == CA_CWR:
            self.stack_can_undo = False
        elif ack.arg == CA_RECOVERY:
            self.stack_can_undo = True
            if ack.rs_prior_in_flight == 0 and ack.ack == ack.snd_una:
                self.reduce(ack, 1, 0, False)

    def undo_cwnd(self, ack):
        """An undone reduction is not completed."""
        self.stack_can_undo = False
        return super().undo_cwnd(ack)

    def cwnd_event(self, ack):
        """Complete a reduction before, restart after the controller hears of it."""
        if ack.arg == EVENT_COMPLETE_CWR:
            self.end_reduction(ack)
        super().cwnd_event(ack)
        if ack.arg == EVENT_CWND_RESTART:
            self.restart_from_idle(ack)

    def on_ack(self, ack):
        """Reduce in the place of the controller [Linux618] tcp_cong_control."""
        if ack.ca_state == CA_CWR or ack.ca_state == CA_RECOVERY:
            self.reduce(ack, ack.rs_acked_sacked, ack.rs_losses, ack.snd_una > self.stack_snd_una)
        self.stack_snd_una = ack.snd_una

    def reduce(self, ack, delivered, lost, advanced):
        """Let out in proportion to what is delivered, then at most as much as that [Linux618] tcp_cwnd_reduction."""
        if delivered <= 0 or self.stack_prior_cwnd == 0:
            return
        in_flight = self.packets_in_flight(ack)
        room = self.snd_ssthresh - in_flight
        sent = ack.data_segs_out - self.stack_sent_before
        self.stack_prr_delivered = self.stack_prr_delivered + delivered
        if room < 0:
            share = self.snd_ssthresh * self.stack_prr_delivered + self.stack_prior_cwnd - 1
            allowed = share // self.stack_prior_cwnd - sent
        else:
            allowed = max(self.stack_prr_delivered - sent, delivered)
            if advanced and lost == 0:
                allowed = allowed + 1
            allowed = min(room, allowed)
        if sent == 0:
            allowed = max(allowed, 1)  # the fast retransmission
        self.snd_cwnd = in_flight + max(allowed, 0)

    def end_reduction(self, ack):
        """[Linux618] tcp_end_cwnd_reduction."""
        if self.snd_ssthresh < TCP_INFINITE_SSTHRESH and (ack.ca_state == CA_CWR or self.stack_can_undo):
            self.snd_cwnd = self.snd_ssthresh

    def restart_from_idle(self, ack):
        """Halve cwnd for every RTO of silence after the first [Linux618] tcp_cwnd_restart."""
        self.snd_ssthresh = self.current_ssthresh()
        rto = (ack.srtt_us8 >> 3) + ack.rttvar_us4
        rto = max((rto * self.hz + USEC_PER_SEC - 1) // USEC_PER_SEC, self.hz // RTO_MIN_PER_SEC)
        lowest = min(TCP_INIT_CWND, self.snd_cwnd)
        idle = ack.jiffies - ack.lsndtime - rto
        while idle > 0 and self.snd_cwnd > lowest:
            self.snd_cwnd = self.snd_cwnd >> 1
            idle = idle - rto
        self.snd_cwnd = max(self.snd_cwnd, lowest)
