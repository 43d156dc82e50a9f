%% @doc `weir scope': shows where a node spends its time, live or once.
-module(weir_cli_scope).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(["record" | Arguments]) ->
    weir_cli_scope_recording:record(Arguments);
run(["replay" | Arguments]) ->
    weir_cli_scope_recording:replay(Arguments);
run(["compare" | Arguments]) ->
    weir_cli_scope_recording:compare(Arguments);
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help()};
        {ok, Values, [Name]} ->
            checked(Name, Values, [Form || Form <- forms(), maps:is_key(Form, Values)]);
        {ok, _, []} ->
            {usage, "a node is missing (weir scope --help)"};
        {ok, _, [_, Extra | _]} ->
            {usage, ["only one node can be shown, unexpected argument: ", Extra, " (weir scope --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir scope --help)"]}
    end.

forms() ->
    [once, json, csv, openmetrics, http, schedules, 'ping-pong'].

checked(_Name, _Values, [One, Other | _]) ->
    {usage, io_lib:format("--~s and --~s exclude each other (weir scope --help)", [One, Other])};
checked(Name, Values, Forms) ->
    %% bin/weir sets WEIR_TERMINAL when it has prepared a terminal.
    case {Forms, os:getenv("WEIR_TERMINAL")} of
        {[], false} ->
            {usage,
                "no terminal: use --once, --json, --csv, --openmetrics, --http, --schedules or --ping-pong "
                "(weir scope --help)"};
        {[], _} ->
            open(Name, Values, live);
        {[http], _} ->
            weir_cli_scope_page:node(Name, Values);
        {[Form], _} ->
            open(Name, Values, Form)
    end.

open(Name, Values, Form) ->
    case weir_cli_node:connect(Name, Values) of
        {ok, Node} ->
            case weir_scope:open(Node, #{load => not maps:get('no-load', Values, false)}) of
                {ok, View} ->
                    Outcome = show(Form, Node, View, Values),
                    ok = weir_scope:close(View),
                    Outcome;
                {error, Reason} ->
                    {failed, weir_cli_node:explain(Reason)}
            end;
        Failure ->
            Failure
    end.

show(live, Node, View, _Values) ->
    weir_cli_scope_terminal:run(Node, fun(Page, Sort) ->
        case weir_scope_page:look(Page, Sort, View) of
            {ok, Data} -> {ok, Data};
            {error, Reason} -> {error, weir_cli_node:explain(Reason)}
        end
    end);
show(once, Node, View, _Values) ->
    told([weir_scope_page:look(Page, hd(weir_scope_page:sorts(Page)), View) || Page <- weir_scope_page:names()], fun(
        All
    ) ->
        [
            ["== ", atom_to_list(Page), $\n, weir_cli_scope_screen:plain(Page, Data, Node), $\n]
         || {Page, Data} <- lists:zip(weir_scope_page:names(), All)
        ]
    end);
show(json, _Node, View, _Values) ->
    told([weir_scope:sample(View), weir_scope:processes(View, #{}), weir_scope:sockets(View, #{})], fun(
        [Sample, Processes, Sockets]
    ) ->
        weir_json:encode(document(Sample#{processes => Processes, sockets => Sockets}))
    end);
show(openmetrics, _Node, View, _Values) ->
    told([weir_scope:sample(View)], fun([Sample]) -> weir_scope_metrics:text(Sample) end);
show(schedules, _Node, View, #{schedules := Seconds}) ->
    case weir_scope:tracer(View) of
        {ok, Tracer} ->
            io:put_chars(standard_error, [weir_cli_scope_schedules:cost(Tracer, Seconds), $\n]),
            told([weir_scope:schedules(View, #{over => Seconds * 1000})], fun([Schedules]) ->
                weir_cli_scope_schedules:text(Schedules)
            end);
        {error, Reason} ->
            {failed, weir_cli_node:explain(Reason)}
    end;
show('ping-pong', _Node, View, _Values) ->
    told([weir_scope:ping_pong(View, 1000)], fun([#{round_trips := Trips, in_2013 := Before}]) ->
        io_lib:format("~b round trips a second between two processes on one scheduler (ipctest in 2013: ~b)~n", [
            round(Trips), Before
        ])
    end);
show(csv, _Node, View, #{seconds := Seconds}) ->
    lines(Seconds, none, none, View).

told(Answers, Text) ->
    case [Reason || {error, Reason} <- Answers] of
        [] -> io:put_chars(Text([Answer || {ok, Answer} <- Answers]));
        [Reason | _] -> {failed, weir_cli_node:explain(Reason)}
    end.

%% Prints a line each second, and a new head when the columns change.
lines(0, _Head, _At, _View) ->
    ok;
lines(Left, Head, Before, View) ->
    case weir_scope:sample(View) of
        {ok, #{node := Node, failing := Why}} ->
            {failed, weir_cli_node:explain({not_sampled, Node, Why})};
        {ok, #{at := Before}} ->
            timer:sleep(50),
            lines(Left, Head, Before, View);
        {ok, #{at := At} = Sample} ->
            {Names, Values} = lists:unzip(weir_scope_sample:numbers(maps:remove(cost, Sample))),
            _ = Names =:= Head orelse io:put_chars([lists:join($,, [<<"at">> | Names]), $\n]),
            io:put_chars([
                lists:join($,, [integer_to_list(At) | [float_to_binary(Value, [short]) || Value <- Values]]), $\n
            ]),
            lines(Left - 1, Names, At, View);
        {error, Reason} ->
            {failed, weir_cli_node:explain(Reason)}
    end.

%% Terms that JSON cannot represent become text.
document(Map) when is_map(Map) -> maps:map(fun(_, Value) -> document(Value) end, Map);
document(List) when is_list(List) -> [document(Value) || Value <- List];
document(Value) when is_number(Value); is_atom(Value); is_binary(Value) -> Value;
document(Other) -> unicode:characters_to_binary(io_lib:format("~0tp", [Other])).

options() ->
    weir_cli_node:options() ++
        [
            #{
                name => once,
                type => flag,
                help => "print all pages once, as text"
            },
            #{
                name => json,
                type => flag,
                help => "print the last second and the top processes and sockets, as JSON"
            },
            #{
                name => csv,
                type => flag,
                help => "print a line of figures each second, as CSV"
            },
            #{
                name => openmetrics,
                type => flag,
                help => "print the last second in Prometheus' format"
            },
            #{
                name => http,
                type => {integer, 0, 65535},
                value => "PORT",
                help => "serve the page and /metrics on 127.0.0.1, 0 takes a free port, until SIGTERM or SIGINT"
            },
            #{
                name => 'no-token',
                type => flag,
                help => "with --http: need no token, so that every user of this machine has access"
            },
            #{
                name => seconds,
                type => {integer, 1, 86400},
                value => "S",
                default => 1,
                help => "number of lines of --csv (1)"
            },
            #{
                name => schedules,
                type => {integer, 1, 60},
                value => "S",
                help =>
                    "measure for S seconds how long ready processes wait, how long turns take, "
                    "and the time between turns"
            },
            #{
                name => 'ping-pong',
                type => flag,
                help => "measure how many messages two processes exchange in a second; keeps one scheduler busy"
            },
            #{
                name => help,
                type => flag,
                help => "this text"
            }
        ].

help() ->
    [
        "weir scope: show where a node spends its time\n"
        "\n"
        "usage: weir scope NODE [OPTION...]\n"
        "       weir scope record NODE FILE [OPTION...]\n"
        "       weir scope replay FILE [OPTION...]\n"
        "       weir scope compare FILE FILE [OPTION...]\n"
        "\n"
        "NODE is any node of OTP 25 or later that Erlang's distribution reaches, such as app@127.0.0.1. It\n"
        "needs no part of Weir, and nothing stays there. Without options the node is shown live in the\n"
        "terminal: Tab shows the next page, ? lists the keys, q quits. Exit code: 0, or 1 if the node cannot\n"
        "be reached.\n"
        "\n",
        weir_cli_options:help(options())
    ].
