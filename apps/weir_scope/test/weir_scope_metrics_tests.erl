%% The document for Prometheus follows the rules of OpenMetrics 1.0.
-module(weir_scope_metrics_tests).

-include_lib("eunit/include/eunit.hrl").

-export([lines/0]).

lines() ->
    Ask = fun erlang:apply/3,
    Sources = weir_scope_sample:open(Ask),
    Sample = weir_scope_sample:between(weir_scope_sample:read(Ask, Sources), weir_scope_sample:read(Ask, Sources)),
    %% Not every machine has these values.
    Machine = #{
        cpu_pressure => 0.1,
        io_pressure => 0.2,
        memory_pressure => 0.0,
        throttled => 0.0,
        totals => #{listen_overflows => 4, listen_drops => 5, retransmits => 6, tcp_memory_pressures => 0}
    },
    Text = unicode:characters_to_binary(
        weir_scope_metrics:text(Sample#{
            machine => Machine, weir => engine(), cost => #{us => 1500, reductions => 1}, failures => 2
        })
    ),
    binary:split(Text, <<"\n">>, [global]).

engine() ->
    Pollset = #{
        pollset => 1,
        sockets => 3,
        totals => #{
            polls => 10,
            empty_polls => 1,
            events => 20,
            sleeps => 1,
            reads => 5,
            read_bytes => 50,
            writes => 1,
            written_bytes => 2
        }
    },
    Listener = #{
        name => {http, "a \"b\" \\ c\nd"},
        connections => 7,
        backlog => 1,
        max_backlog => 1024,
        totals => #{accepted => 9, overload => 0, denied => 0, full_pauses => 8, replies => 3, reply_ns => 4_500_000},
        latency => weir_scope_latency:figures([{500_000, 2}, {3_500_000, 1}])
    },
    Http = [
        #{name => Name, help => <<"of HTTP">>, values => [#{listener => web, total => 12, rate => 1.0}]}
     || Name <- [<<"weir_http_requests">>, <<"weir_http_refused">>]
    ],
    Push = [
        #{name => Name, help => <<"of channels">>, values => [#{total => 13, rate => 1.0}]}
     || Name <- [<<"weir_pubsub_published">>, <<"weir_pubsub_delivered">>, <<"weir_pubsub_broadcast">>]
    ],
    Reactor = #{
        pollset => 1025,
        module => echo,
        totals => #{callbacks => 6, callback_ns => 3_000_000},
        latency => weir_scope_latency:figures([{400_000, 2}])
    },
    Unmeasured = #{pollset => 1026, module => echo, totals => #{callbacks => 7, callback_ns => 4_000_000}},
    Server = #{
        proxy => main,
        backend => <<"web">>,
        server => <<"10.0.0.1:80">>,
        totals => #{replies => 5, reply_ns => 6_000_000},
        latency => weir_scope_latency:figures([{700_000, 2}])
    },
    #{
        servers => [Server],
        locks => [#{table => sockets, total => 3, rate => 1.0}],
        pollsets => [Pollset],
        reactors => [Reactor, Unmeasured],
        listeners => [Listener],
        counts => #{relays => 2, groups => 3},
        products => Http ++ Push
    }.

every_line_has_the_form_test() ->
    Lines = lines(),
    ?assertEqual([<<"# EOF">>, <<>>], lists:nthtail(length(Lines) - 2, Lines)),
    Name = "[a-z][a-z0-9_]*",
    Label = Name ++ "=\"([^\"\\\\\n]|\\\\[\\\\\"n])*\"",
    Form =
        "^(# (TYPE " ++ Name ++ " (counter|gauge|summary)|HELP " ++ Name ++ " [^\n]+|EOF)|" ++ Name ++ "({" ++ Label ++
            "(," ++ Label ++ ")*})? -?[0-9.e+-]+)$",
    ?assertEqual([], [Line || Line <- lists:droplast(Lines), re:run(Line, Form, [{capture, none}]) =:= nomatch]).

%% A family is declared once, before its series. The series follow each other and have its name.
families_stand_together_test() ->
    {_, Seen} = lists:foldl(
        fun
            (<<"# TYPE ", Rest/binary>>, {_, Names}) ->
                [Name, Kind] = binary:split(Rest, <<" ">>),
                ?assertNot(lists:member(Name, Names)),
                {{Name, Kind}, [Name | Names]};
            (<<"# HELP ", Rest/binary>>, {{Name, _}, _} = State) ->
                ?assertMatch([Name, _], binary:split(Rest, <<" ">>)),
                State;
            (<<"#", _/binary>>, State) ->
                State;
            (Line, {{Name, Kind}, _} = State) ->
                [Series | _] = re:split(Line, "[{ ]"),
                Suffixes =
                    case Kind of
                        <<"counter">> -> ["_total"];
                        <<"gauge">> -> [""];
                        <<"summary">> -> ["", "_count", "_sum"]
                    end,
                ?assert(lists:member(Series, [<<Name/binary, (list_to_binary(Suffix))/binary>> || Suffix <- Suffixes])),
                State
        end,
        {none, []},
        lists:droplast(lines())
    ),
    [
        ?assert(lists:member(Name, Seen))
     || Name <- [
            <<"beam_scheduler_utilisation_ratio">>,
            <<"beam_reductions">>,
            <<"weir_pollset_polls">>,
            <<"weir_listener_accepted">>,
            <<"weir_listener_reply_seconds">>
        ]
    ].

values_test() ->
    Lines = lines(),
    Named = <<"{listener=\"{http,\\\"a \\\\\\\"b\\\\\\\" \\\\\\\\ c\\\\nd\\\"}\"">>,
    [
        ?assert(lists:member(Line, Lines))
     || Line <- [
            <<"weir_listener_reply_seconds", Named/binary, ",quantile=\"0.5\"} 0.0005">>,
            <<"weir_listener_reply_seconds", Named/binary, ",quantile=\"0.99\"} 0.0035">>,
            <<"weir_listener_reply_seconds_count", Named/binary, "} 3">>,
            <<"weir_listener_reply_seconds_sum", Named/binary, "} 0.0045">>,
            <<"weir_reactor_callback_seconds{pollset=\"1025\",module=\"echo\",quantile=\"0.5\"} 0.0004">>,
            <<"weir_reactor_callback_seconds_count{pollset=\"1025\",module=\"echo\"} 6">>,
            <<"weir_reactor_callback_seconds_sum{pollset=\"1026\",module=\"echo\"} 0.004">>,
            <<"weir_proxy_server_reply_seconds{proxy=\"main\",backend=\"web\",server=\"10.0.0.1:80\",quantile=\"0.5\"} "
                "0.0007">>,
            <<"weir_proxy_server_reply_seconds_count{proxy=\"main\",backend=\"web\",server=\"10.0.0.1:80\"} 5">>,
            <<"weir_lock_waits_total{table=\"sockets\"} 3">>,
            <<"beam_scope_failures_total 2">>,
            <<"weir_listener_full_pauses_total", Named/binary, "} 8">>,
            <<"beam_listen_overflows_total 4">>,
            <<"beam_tcp_retransmits_total 6">>,
            <<"weir_relays 2">>,
            <<"weir_groups 3">>,
            <<"weir_http_requests_total{listener=\"web\"} 12">>,
            <<"weir_pubsub_published_total 13">>,
            <<"weir_listener_backlog_limit", Named/binary, "} 1024">>,
            <<"weir_pollset_events_total{pollset=\"1\"} 20">>,
            <<"beam_scope_sample_seconds 0.0015">>,
            <<"weir_listener_accepted_total{listener=\"{http,\\\"a \\\\\\\"b\\\\\\\" \\\\\\\\ c\\\\nd\\\"}\"} 9">>
        ]
    ],
    [Reductions] = [binary_to_integer(Value) || <<"beam_reductions_total ", Value/binary>> <- Lines],
    ?assert(Reductions > 1000),
    %% About as many as there are now.
    [Processes] = [binary_to_integer(Value) || <<"beam_entries{table=\"processes\"} ", Value/binary>> <- Lines],
    ?assert(abs(Processes - erlang:system_info(process_count)) < 20).

no_series_for_processes_test() ->
    ?assert(length(lines()) < 300).
