%% @doc The events of proxies, see {@link weir_event}.
%% <table>
%% <tr><td>event</td><td>measurements</td><td>metadata</td></tr>
%% <tr><td>`[weir, proxy, session]': a session has ended</td>
%%   <td>`duration' since the server was connected (native units), `bytes_in', `bytes_out', `queued' (milliseconds in
%%   the queue), `connected' (milliseconds until the server was connected)</td>
%%   <td>`proxy', `frontend', `backend', `server', `peer', `reason': `normal', `timeout', `life' (`longest_life' has
%%   passed), `operator' (closed by a command, or with the proxy), `down' (its server is down), or why a connection
%%   failed</td></tr>
%% <tr><td>`[weir, proxy, refuse]': a connection has ended without a server</td><td>`count', `queued'</td>
%%   <td>`proxy', `frontend', `peer', `backend' (the frontend's name if no backend was chosen), `reason': `reject',
%%   `gone', `killed', `crashed', `refused', `exhausted' (no descriptor, port or memory was left here), `none',
%%   `no_backend', `queue_timeout' or `queue_full'</td></tr>
%% <tr><td>`[weir, proxy, server]': the state of a server has changed</td><td>`count'</td>
%%   <td>`proxy', `backend', `server', `state', `before'</td></tr>
%% </table>
-module(weir_proxy_event).

-include("weir_proxy_session.hrl").

-export([session/3]).
-export([refuse/2]).
-export([server/5]).

-define(SESSION, [weir, proxy, session]).
-define(REFUSE, [weir, proxy, refuse]).

%% @private
-spec session(#session{}, term(), weir_relay:statistics() | none) -> ok.
session(_Session, _Result, none) ->
    ok;
session(Session, Result, Statistics) ->
    case weir_event:is_attached(?SESSION) of
        false ->
            ok;
        true ->
            #{a_to_b := #{bytes := In}, b_to_a := #{bytes := Out}, duration_us := Duration} = Statistics,
            Measurements = #{
                duration => erlang:convert_time_unit(Duration, microsecond, native),
                bytes_in => In,
                bytes_out => Out,
                queued => Session#session.queued,
                connected => Session#session.connected
            },
            weir_event:execute(?SESSION, Measurements, (about(Session))#{
                server => Session#session.server, reason => reason(Result)
            })
    end.

reason(closed) -> normal;
reason({error, Reason}) -> Reason;
reason({ended, Why}) -> Why.

%% @private
-spec refuse(atom(), #session{}) -> ok.
refuse(Why, Session = #session{queued = Queued}) ->
    case weir_event:is_attached(?REFUSE) of
        false -> ok;
        true -> weir_event:execute(?REFUSE, #{count => 1, queued => Queued}, (about(Session))#{reason => Why})
    end.

about(#session{proxy = Proxy, frontend = Frontend, backend = Backend, client = Client}) ->
    #{proxy => Proxy, frontend => Frontend, backend => Backend, peer => Client}.

%% @private
-spec server(term(), binary(), binary(), atom(), atom()) -> ok.
server(Proxy, Backend, Server, Before, State) ->
    About = #{proxy => Proxy, backend => Backend, server => Server, state => State, before => Before},
    ok = weir_event:execute([weir, proxy, server], #{count => 1}, About),
    weir_reports:log(notice, About#{what => "the state of a server has changed"}).
