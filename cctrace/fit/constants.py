"""Constants of the fits: value, unit, kind and reason on one line each; see `cctrace.path.constants`."""

# --- fitted paths ----------------------------------------------------------------------------------------------------
RATE_GAIN = 0.01  # share | set | least reduction of the delays' deviation by the queue, for the rate to be known
MAX_RATE_ERROR = 0.2  # share | set | standard error from which a rate is not an estimate
RESOLUTION_US = 2.0  # us | set | resolution of delays
STANDING_SDS = 200.0  # times the sd | set | duration of a standing queue from which delays alone determine the rate
MAX_ROUNDS = 3  # rounds | accuracy | of alternating delays and rate
RATE_CHANGE = 0.002  # of log rate | accuracy | or standard error, from which delays and the profile are recomputed
DELAY_QUANTILES = 1000  # quantiles | accuracy | of delays on a reordering path: one in a thousand may be early
BOUND_REACH = 10.0  # times | set | how far beyond a one-sided bound draws extend

# --- jitter ----------------------------------------------------------------------------------------------------------
MAX_EVENTS = 6000  # draws | accuracy | most used of a long flow: blocks of groups, evenly spread
MIN_EVENTS = 30  # draws | set | least to fit or test a distribution
DRAWS = 400  # draws | accuracy | of a bootstrap, or of the test of a distribution
MIN_SHARE = 0.5  # share | set | of draws that are known, of time without others' packets, of competitors' overlap
AIC_TIE = 6.0  # AIC | set | difference up to which the simpler family is preferred
AIC_TIE_SHARE = 5e-4  # of AIC | set | the same: no path follows a family exactly, and 100,000 samples would reveal it
MIN_FIT_PROBABILITY = 0.01  # probability | set | of the residuals, below which a family does not fit
MAX_FIT_DISTANCE = 0.05  # distance | set | of the residuals from uniform, from which a family does not fit
WANDER_DISTANCE = 0.03  # distance | set | of the residuals, from which shifts common to neighbours are removed
WANDER_US = 50_000.0  # us | set | period over which such shifts are common
STEADIER_SHARE = 0.6  # share | set | of that distance, that may remain
GRID_POINTS = 768  # points | accuracy | at which a distribution is evaluated; between them it is interpolated
MAX_STALL_SHARE = 0.03  # share | set | most of the delays that are host stalls instead of jitter
MIN_STALL_GAIN = 4.0  # log likelihood | set | least that stalls must explain
TEST_POINTS = 99  # points | accuracy | at which the test compares distributions
TEST_SHIFT = 0.05  # of a parameter's unit | accuracy | by which the test moves it
MAX_FLAT_SHARE = 0.25  # share | set | of flat pairs, from which draws are shared, unless chance explains a third
SELDOM_SHARE = 0.05  # share | set | of neighbours arriving apart, if each has its own draw and most wait
BIN_US = 50.0  # us | accuracy | of the search for the slot length
BLOCK_GROUPS = 200  # groups | accuracy | per block, where not all are used

# --- rate and jitter together ----------------------------------------------------------------------------------------
MAX_GROUPS = 12_000  # ACKs | accuracy | most in a likelihood
KEPT_RATES = 8  # rates | accuracy | whose delays are cached during differentiation
MAX_JOINT_STEPS = 4  # rates | accuracy | most that are fitted jointly
PROFILE_REACH = 0.9162907318741551  # of log rate | accuracy | range of the profile: a factor of 2.5
PROFILE_POINTS = 12  # points | accuracy | of the profile, on each side
PROFILE_DEPTH = 30.0  # log likelihood | accuracy | below the maximum, where a profile ends
MAX_MOVES = 12  # moves | accuracy | most of an ascent
KNOWN_RATE = 1e-4  # of log rate | set | standard error up to which no other jitter family is tried
RIVAL_AIC = 150.0  # AIC | set | largest difference of another family that is tried
MAX_RIVALS = 2  # families | accuracy | most that are tried
MAX_TIMES = 30.0  # times | accuracy | largest change of the sd during a search
MIN_EIGENVALUE = 1e-5  # eigenvalue | accuracy | least of a curvature with unit diagonal
MAX_MOVE = 0.5  # of log rate | accuracy | largest move
MIN_LOG = -1e6  # log likelihood | accuracy | floor, of an ACK
NO_STALLS = -10.0  # log-odds | accuracy | of no stalls

# --- collapse --------------------------------------------------------------------------------------------------------
MIN_JITTER = 1e-2  # of the mean delay | set | smaller jitter does not reveal its process
SHAPE_ERROR = 0.04  # of log sd | set | error of a shape that only resembles the true one further out
ASSUMED_SLOT_US = 5000.0  # us | set | assumed slot of jitter too small to reveal its process
QUICK_SEGMENTS = 800_000  # segments | accuracy | simulated by `cctrace analyze`
QUICK_DIVISOR = 3  # times | accuracy | fewer draws and ACKs for `cctrace analyze`
QUICK_PACKETS = 100_000  # packets | accuracy | used by `cctrace analyze`
QUICK_BPS = 250e6  # bit/s | accuracy | up to which it does so
LOSSY_SHARE = 0.02  # share | set | of segments lost, from which lossless runs are not representative
FASTER_TIMES = 1.3  # times the fitted rate | set | for half a second: then the fitted rate is not the path's
MIN_PART = 300  # RTTs | set | least for a part of a flow to have its own rate
JITTERY_SHARE = 0.05  # of the mean delay | set | jitter from which it may explain a drop of the throughput
MIN_COLLAPSE_PROBABILITY = 0.05  # probability | set | of a collapse, below which the verdict is no
SEGMENTS = 4_000_000  # segments | accuracy | most simulated in a search
LONGEST_S = 60.0  # s | accuracy | of a run
SHORTEST_S = 21.0  # s | definition | of a run: min_rtt expires after 10 s, the tail starts at a third
RUNS = 14  # runs | accuracy | of a search
MIN_RUNS = 11  # runs | accuracy | of a search
SD_STEP = 1.5  # times | accuracy | factor of the sd until the share crosses one half
CLOSE_LOG_SD = 0.15  # of log sd | set | from the threshold, beyond which runs count less; scatter without a curve
MIN_SCATTER = 0.05  # of log sd | set | least standard error of `RUNS` runs: scatter between seeds
SCATTER_RANGE = (0.08, 0.6)  # of log sd | set | range of the scatter of the threshold of one run
FAR_SHARE = 0.2  # of the mean delay | accuracy | sd below which a quick forecast seeks no threshold
FAR_RUNS = 2  # runs | set | that must agree that the threshold is not below
NO_COLLAPSE = 0.3  # of the threshold | set | below this no run collapses

# --- parameters, groups of flows, shares -----------------------------------------------------------------------------
SCORE_SPREAD = 1.5  # standard errors | set | 0.98 if they were known; they are estimated from tens of intervals
MIN_BLOCKS = 10  # intervals | set | of 0.2 s with sends
MAX_GRIDS = 4  # grids | accuracy | most, each twice as fine as the previous one
MAX_PEAKS = 3  # points | accuracy | grid maxima that are refined
FINEST_STEP = 1e-4  # of the range | accuracy | steps of a climb
MIN_PROFILE_POINTS = 5  # points | accuracy | from which a profile starts
GEOMETRIC_RANGE = 100  # times | set | width of a range from which its grid is geometric
MIN_FLOWS = 3  # flows | set | least to estimate the spread between flows
MAX_BETWEEN = 3.0  # of the range of the values | accuracy | largest sd between flows in the average
BETWEEN_POINTS = 301  # points | accuracy | of that average
MIN_SHARE_BYTES = 1_000_000  # bytes | set | of a flow that competes
BIN_NS = 500_000_000  # ns | set | bin in which shares are counted
SETTLING_SHARE = 0.2  # of the common time | set | initial transient, ignored
MIN_COMMON_S = 5.0  # s | set | least common time
SHARE_DRAWS = 1000  # draws | accuracy | of the bootstrap of shares
