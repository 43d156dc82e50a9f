// What the client does in the tests, in Node and in a page: it subscribes, and reports what it sees to a listener
// that is never cut off.
export async function run(push, { server, said, transports, webSocket }) {
  const say = (what) => fetch(said, { method: 'POST', mode: 'no-cors', body: JSON.stringify(what) });
  let queue = Promise.resolve();
  const tell = (what) => (queue = queue.then(() => say(what)));
  const client = push.connect(server, {
    ...(transports && { transports }),
    ...(webSocket === false && { WebSocket: undefined }),
    openTimeout: 60000,
    minDelay: 50,
    maxDelay: 200,
    restartDelay: 100,
    state: (state, transport) => state === 'open' && tell({ open: transport }),
  });
  client.subscribe(
    'room',
    {
      message: ({ data, id }) => tell({ message: typeof data === 'string' ? data : [...data], id }),
      gap: ({ missed }) => tell({ gap: missed }),
      closed: ({ reason }) => tell({ closed: reason }),
      error: ({ code }) => tell({ error: code }),
    },
    { from: 100, info: { name: 'Ann' } },
  );
  client.subscribe('orders', {
    message: async ({ data }) => {
      if (data === 'publish') tell({ published: (await client.publish('answers', 'from the client')).channel });
      if (data === 'presence') {
        client.presence('room').then(
          (present) => tell({ present: present.map(({ info }) => info) }),
          ({ code }) => tell({ failed: code }),
        );
      }
      if (data === 'history') {
        client.history('room', { from: 1 }).then(
          ({ messages }) => tell({ history: messages.map(({ data }) => data) }),
          ({ code }) => tell({ failed: code }),
        );
      }
      if (data === 'close') client.close();
    },
  }, { from: 100 });
}
