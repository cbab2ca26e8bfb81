// Load a qlog as qvis does, by qvis's own source: node qvis.js SRC FILE, where SRC is visualizations/src of
// github.com/quiclog/qvis; prints what its loader found. Needs the package typescript.
"use strict";
const fs = require("fs");
const path = require("path");
const Module = require("module");
const ts = require("typescript");

const [source, file] = process.argv.slice(2);
console.error = (...words) => { process.stderr.write(words.join(" ") + "\n"); process.exitCode = 3; };
console.log = () => {};
global.alert = (text) => console.error("alert:", text);

const resolve = Module._resolveFilename;
Module._resolveFilename = function (request, ...rest) {
    if (request.startsWith("@/")) return resolve.call(this, path.join(source, request.slice(2)), ...rest);
    return resolve.call(this, request, ...rest);
};
const load = Module._load;
Module._load = function (request, ...rest) {
    if (request === "vue" || request.startsWith("@quictools/")) return {default: {}};
    return load.call(this, request, ...rest);
};
require.extensions[".ts"] = (module, name) => {
    const options = {module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2019};
    module._compile(ts.transpileModule(fs.readFileSync(name, "utf8"), {compilerOptions: options}).outputText, name);
};

(async () => {
    const convert = require(path.join(source, "components/filemanager/newlineconverter/textsequencejsontoqlog.ts")).default;
    const {QlogLoader} = require(path.join(source, "data/QlogLoader.ts"));
    const qlog = await convert.convert(new Response(new Blob([fs.readFileSync(file)])).body);
    const [connection] = QlogLoader.fromJSON(qlog).getConnections();
    connection.setupLookupTable();
    const found = (category, name) => connection.lookup(category, name).map((event) => {
        const parsed = connection.parseEvent(event);
        return {time: parsed.relativeTime, data: parsed.data};
    });
    process.stdout.write(JSON.stringify({
        events: connection.getEvents().length,
        vantage: connection.vantagePoint.type,
        sent: found("transport", "packet_sent"),
        received: found("transport", "packet_received"),
        lost: found("recovery", "packet_lost"),
        metrics: found("recovery", "metrics_updated"),
        states: found("recovery", "congestion_state_updated"),
    }));
})();
