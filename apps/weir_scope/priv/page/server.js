// Requests to the server. The token is kept in the session storage of the tab, and is only sent in one header.

const key = "weir_scope_token";

export const keepToken = (token) => sessionStorage.setItem(key, token);

// Takes the token from an address such as `/#token=T`, which the command prints. A browser does not send the fragment,
// and it is removed from the address at once.
export const takeToken = () => {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return;
  keepToken(given);
  history.replaceState(null, "", location.pathname + location.search);
};

export class Refused extends Error {}

const ask = async (path, signal) => {
  const token = sessionStorage.getItem(key);
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  const response = await fetch(path, { headers, signal, cache: "no-store" });
  if (response.status === 401) throw new Refused("a token is needed");
  if (!response.ok) throw new Error((await response.text()).trim() || `the server says ${response.status}`);
  return response;
};

export const get = async (path, signal) => (await ask(path, signal)).json();

// Server-sent events by fetch, because EventSource cannot send the header. Calls `event(name, data)` for each event.
// Returns or throws when the stream ends, or when nothing comes for 20 seconds, not even a heartbeat.
export const stream = async (path, event) => {
  const control = new AbortController();
  let watch;
  const alive = () => {
    clearTimeout(watch);
    watch = setTimeout(() => control.abort(), 20000);
  };
  try {
    alive();
    const response = await ask(path, control.signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    event("open", "");
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) told(part, event);
    }
  } finally {
    clearTimeout(watch);
    control.abort();
  }
};

const told = (part, event) => {
  let name = "message";
  const data = [];
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  if (data.length > 0) event(name, data.join("\n"));
};
