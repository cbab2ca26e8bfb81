-- cctrace: what `cctrace annotate` found out about each packet, as fields to filter by and to show as columns.
--
-- It reads FILE.cctrace.tsv beside an annotated capture: the one named on Wireshark's command line (on Linux), or in
-- the preference cctrace.file, or in the environment variable CCTRACE_FILE. It reads data only; nothing is run.

local MAGIC = "cctrace annotations 1"
local SUFFIX = ".cctrace.tsv"

local cctrace = Proto("cctrace", "cctrace: TCP congestion control")
cctrace.prefs.file = Pref.string("Annotations", "", "The .cctrace.tsv file; empty: beside the capture that was opened")

local SEGMENTS, RATE, TIME = " (segments)", " (bit/s)", " (us)"
local fields = {
    flow = ProtoField.uint32("cctrace.flow", "Flow"),
    controller = ProtoField.string("cctrace.controller", "Controller replayed"),
    state = ProtoField.string("cctrace.state", "State of the controller"),
    tcp_state = ProtoField.string("cctrace.tcp_state", "State of TCP"),
    limit = ProtoField.string("cctrace.limit", "Limited by"),
    cwnd = ProtoField.uint32("cctrace.cwnd", "Congestion window" .. SEGMENTS),
    inflight = ProtoField.uint32("cctrace.inflight", "In flight" .. SEGMENTS),
    pacing_rate_bps = ProtoField.uint64("cctrace.pacing_rate_bps", "Pacing rate" .. RATE),
    bw_bps = ProtoField.uint64("cctrace.bw_bps", "Bandwidth estimate" .. RATE),
    min_rtt_us = ProtoField.uint32("cctrace.min_rtt_us", "min_rtt" .. TIME),
    rtt_us = ProtoField.uint32("cctrace.rtt_us", "RTT sample" .. TIME),
    resent = ProtoField.string("cctrace.resent", "Retransmitted because of"),
    spurious = ProtoField.bool("cctrace.spurious", "Spurious retransmission"),
    window_left = ProtoField.uint64("cctrace.window_left", "Receive window left (bytes)"),
}
for name, field in pairs(fields) do
    cctrace.fields[name] = field
end

local NUMBERS = {flow = 1, cwnd = 1, inflight = 1, min_rtt_us = 1, rtt_us = 1}
local LARGE = {pacing_rate_bps = 1, bw_bps = 1, window_left = 1}

local rows     -- frame number -> its line; nil until a file was looked for
local columns  -- names of the columns, in their order
local first    -- number and time of the first packet that has a line

-- The files that may hold the annotations, the one that was asked for first.
local function candidates()
    local found = {}
    for _, name in ipairs({cctrace.prefs.file, os.getenv("CCTRACE_FILE") or ""}) do
        if name ~= "" then found[#found + 1] = name end
    end
    local command = io.open("/proc/self/cmdline", "rb")
    if command then
        for argument in command:read("*a"):gmatch("[^%z]+") do
            found[#found + 1] = argument .. SUFFIX
            if argument:sub(1, 2) == "-r" then found[#found + 1] = argument:sub(3) .. SUFFIX end
        end
        command:close()
    end
    return found
end

local function split(line)
    local cells = {}
    for cell in (line .. "\t"):gmatch("([^\t]*)\t") do cells[#cells + 1] = cell end
    return cells
end

-- Read the first file that there is; a file that is none of ours is passed over.
local function load()
    rows, columns, first = {}, {}, {}
    for _, name in ipairs(candidates()) do
        local file = io.open(name, "r")
        if file then
            local head = split(file:read("*l") or "")
            if head[1] == MAGIC then
                first = {frame = tonumber(head[2]), time = tonumber(head[3])}
                columns = split(file:read("*l") or "")
                for line in file:lines() do
                    local frame = tonumber(line:match("^%d+"))
                    if frame then rows[frame] = line end
                end
                file:close()
                return
            end
            file:close()
        end
    end
end

function cctrace.init()
    rows = nil
end

function cctrace.prefs_changed()
    rows = nil
end

function cctrace.dissector(buffer, pinfo, tree)
    if rows == nil then load() end
    if pinfo.number == first.frame and math.abs(pinfo.abs_ts - first.time) > 0.001 then
        rows = {}  -- the annotations are of another capture
    end
    local line = rows[pinfo.number]
    if not line then return end
    local cells = split(line)
    local branch = tree:add(cctrace)
    for i, name in ipairs(columns) do
        local field, cell = fields[name], cells[i]
        if field and cell and cell ~= "" then
            if NUMBERS[name] then
                branch:add(field, tonumber(cell) or 0):set_generated()
            elseif LARGE[name] then
                branch:add(field, UInt64(tonumber(cell) or 0)):set_generated()
            elseif name == "spurious" then
                branch:add(field, cell == "1"):set_generated()
            else
                branch:add(field, cell):set_generated()
            end
        end
    end
end

register_postdissector(cctrace)
