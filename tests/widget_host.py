"""A page that hosts a widget as a notebook does: the script as a module, the state as JSON, its columns as buffers."""

import base64
import json

_PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Host</title></head><body>
<div id="el"></div><script type="application/json" id="state">{state}</script><script>
const {{ state, paths, buffers, esm }} = JSON.parse(document.getElementById("state").textContent);
paths.forEach((path, i) => {{
  const text = atob(buffers[i]), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  path.slice(0, -1).reduce((part, key) => part[key], state)[path.at(-1)] = new DataView(bytes.buffer);
}});
const heard = {{}}, model = {{
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; }},
  save_changes: () => {{ window.saved = structuredClone(state.span); }},
  on: (name, call) => {{ (heard[name] ??= []).push(call); }},
  off: (name, call) => {{ heard[name] = (heard[name] ?? []).filter((one) => one !== call); }},
}};
window.tell = (name, value) => {{ state[name] = value; for (const call of heard[`change:${{name}}`] ?? []) call(); }};
window.begin = async () => {{
  const module = await import(URL.createObjectURL(new Blob([esm], {{ type: "text/javascript" }})));
  window.leave = await module.default.render({{ model, el: document.getElementById("el") }});
  return true;
}};
window.cctrace = {{ ready: {begin} }};
</script></body></html>"""


def hosted(widget, waits=False):
    """Return the page as HTML; one that waits shows the widget when its ``begin()`` is called."""
    from ipywidgets.widgets.widget import _remove_buffers

    state, paths, buffers = _remove_buffers(widget.get_state(["html", "data", "span"]))
    texts = [base64.b64encode(buffer).decode("ascii") for buffer in buffers]
    everything = {"state": state, "paths": paths, "buffers": texts, "esm": type(widget)._esm.default_value}
    begin = "Promise.resolve()" if waits else "window.begin()"
    return _PAGE.format(state=json.dumps(everything).replace("<", "\\u003c"), begin=begin)
