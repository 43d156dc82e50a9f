%% @doc Runs an HTTP listener in the foreground, until SIGTERM or SIGINT.
-module(weir_cli_foreground).

-export([serve/3]).

%% Milliseconds that connections have to finish their requests after the signal.
-define(DRAIN_MS, 5000).

%% @doc Starts a listener with the options of {@link weir_http:start_listener/3}, prints `ready PORT' and `pid PID' (of
%% the emulator), and drains the listener after the signal. Returns `failed' if it cannot listen.
-spec serve(Name :: atom(), Options, [weir_http_routes:route()]) -> weir_cli:outcome() when
    Options :: #{ip := inet:ip_address(), port := inet:port_number(), _ => _}.
serve(Name, #{ip := Ip, port := Port} = Options, Routes) ->
    weir_cli_signal:report_to(self()),
    {ok, _} = application:ensure_all_started(weir_http),
    case weir_http:start_listener(Name, Options, Routes) of
        {ok, _} ->
            io:format("ready ~b~npid ~s~n", [weir:get_port(Name), os:getpid()]),
            receive stop -> ok end,
            _ = weir_http:drain_listener(Name, ?DRAIN_MS),
            weir_http:stop_listener(Name);
        {error, Reason} ->
            {failed, ["cannot listen on ", inet:ntoa(Ip), " port ", integer_to_list(Port), ": ", explain(Reason)]}
    end.

explain(Reason) ->
    case inet:format_error(Reason) of
        "unknown POSIX error" ++ _ -> io_lib:format("~0tp", [Reason]);
        Text -> Text
    end.
