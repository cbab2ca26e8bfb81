"""Constants of what-ifs and effects: value, unit, kind and reason on one line each; see `cctrace.path.constants`."""

# --- limits at the hosts, from packets or polls ----------------------------------------------------------------------
WINDOW_SHUT = 0.01  # of the time | set | with a closed window, from which the receive window is modelled
GROWN_WINDOW = 2.0  # times the data per RTT | definition | a growing window is larger [Linux] tcp_rcv_space_adjust
APPLICATION_SHARE = 0.05  # of the time | set | without data to send (or room for it), from which it may matter
WRITTEN_EARLY_SHARE = 0.10  # of the time | set | the same, from which writes without pattern wait for a send buffer

# --- paths that only polls bound -------------------------------------------------------------------------------------
LONGEST_S = 20.0  # s | accuracy | simulated of polls, which describe a steady state; least of a flow that is given data
MIN_POLLS = 20  # polls | set | with an RTT and a rate
RATE_ERROR = 0.05  # of a full path's rate | set | one standard error

# --- simulated questions ---------------------------------------------------------------------------------------------
DRAWS = 12  # paths | accuracy | drawn for a what-if
MIN_DRAWS = 3  # paths | accuracy | least of a what-if
MAX_DRAWS = 10_000  # paths | set | most of a what-if, each simulated once for every candidate
EFFECT_DRAWS = 8  # paths | accuracy | drawn for effects
MIN_EFFECT_DRAWS = 4  # paths | accuracy | the same for a flow of many segments
DRAW_FACTOR = 4  # times as many draws | accuracy | if chance matters: those closest to the recorded flow are kept
SEGMENTS_PER_QUESTION = 2_000_000  # segments | accuracy | simulated in two seconds of a core: fewer draws of long flows
MAX_SEGMENTS = 1_000_000  # segments | accuracy | of a flow whose effects are simulated, or that is given data
INTERRUPT_US = 1.0  # us | set | jitter of hosts' interrupts, where the path has none: so that no tie decides [Floyd92]
SHORT_QUEUE = 20  # packets | set | below which the order of two packets at one instant may decide a flow's course
OPEN_ENDED_TIMES = 1.1  # times | set | the RTT with shorter queues, from which longer ones would increase it further
MAX_BDP = 10.0  # bandwidth-delay products | set | largest usual buffer
BUFFER_REACH_TIMES = 4.0  # times | accuracy | below the mean data in flight, for the smallest send buffer tried
BUFFER_TRIALS = 8  # sizes | accuracy | evenly in the logarithm
BUFFER_ROUNDS = 3  # rounds | accuracy | each refines between the neighbours of the best

# --- rival explanations ----------------------------------------------------------------------------------------------
MIN_DEVIANCE_GAIN = 5.991464547107981  # twice the log likelihood | set | least, of another path: 2 ln 20, odds of 20
RUNS_PER_PATH = 4  # simulations | accuracy | per explanation
MAX_HEAD_START_S = 20.0  # s | accuracy | at most, of other flows before a flow joins them: their start-up is over
GRID_S = 0.1  # s | accuracy | of the courses that are compared
LAST_RTTS = 8  # samples | definition | whose mean approximates the smoothed RTT [RFC6298]
