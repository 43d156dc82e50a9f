%% Features of local sockets only: paths, abstract names and their lengths.
-module(weir_tcp_local_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [patience/0]).

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [keep/1]).
-import(weir_tcp_family_test, [path/2, where/1, listen/2, listen/3, connect/4, connect_to/3, pair/3, what/1]).

-include("family_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_tcp_family_test:groups([{local, cases()}]).

cases() ->
    [
        local_path_as_string, local_abstract, local_chosen_name, local_bound_connect, local_length, local_null_in_path,
        local_unicode, local_port, local_not_bound, local_other_address, local_no_text, local_not_there,
        local_options_of_tcp, local_full_backlog
    ].

local_path_as_string(Config) ->
    Path = path(Config, "string"),
    {ok, Listener} = listen(Config, 0, [{ifaddr, {local, binary_to_list(Path)}}]),
    ?assertEqual({ok, {local, Path}}, inet:sockname(Listener)),
    ?assertMatch({ok, _}, connect(Config, {local, binary_to_list(Path)}, 0, [])),
    ok = gen_tcp:close(Listener),
    %% The path is removed by the code that created it, not by close.
    ?assertMatch({ok, _}, file:read_link_info(Path)).

local_abstract(Config) ->
    Name = <<0, (path(Config, "abstract"))/binary>>,
    {ok, Listener} = listen(Config, 0, [{ifaddr, {local, Name}}]),
    ?assertEqual({ok, {local, Name}}, inet:sockname(Listener)),
    {ok, Connected} = connect(Config, {local, Name}, 0, []),
    ?assertEqual({ok, {local, Name}}, inet:peername(Connected)).

local_chosen_name(Config) ->
    [
        begin
            {ok, Listener} = listen(Config, 0, [{ifaddr, Address}]),
            {ok, {local, <<0, _, _/binary>>} = Name} = inet:sockname(Listener),
            ?assertMatch({ok, _}, connect(Config, Name, 0, []))
        end
     || Address <- [{local, <<>>}, {local, ""}]
    ],
    ok.

local_bound_connect(Config) ->
    {ok, Listener} = listen(Config, []),
    {ok, Connected} = connect_to(Config, Listener, [{ifaddr, {local, path(Config, "client")}}]),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
    ?assertEqual({ok, {local, path(Config, "client")}}, inet:peername(Accepted)),
    ?assertEqual({ok, {local, path(Config, "client")}}, inet:sockname(Connected)).

local_length(Config) ->
    Path = fun(Size) ->
        Short = path(Config, ""),
        <<Short/binary, $/, (binary:copy(<<"x">>, Size - byte_size(Short) - 1))/binary>>
    end,
    {ok, Listener} = listen(Config, 0, [{ifaddr, {local, Path(107)}}]),
    ?assertEqual({ok, {local, Path(107)}}, inet:sockname(Listener)),
    ?assertMatch({ok, _}, connect(Config, {local, Path(107)}, 0, [])),
    %% The name is as unique as the case's directory.
    Abstract = fun(Size) -> <<0, (Path(Size - 1))/binary>> end,
    {ok, Named} = listen(Config, 0, [{ifaddr, {local, Abstract(108)}}]),
    ?assertEqual({ok, {local, Abstract(108)}}, inet:sockname(Named)),
    [
        begin
            ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, {local, TooLong}}])),
            ?assertEqual(exit, what(fun() -> connect(Config, {local, TooLong}, 0, []) end))
        end
     || TooLong <- [Path(108), Path(300), Abstract(109), Abstract(300), lists:duplicate(200, $x)]
    ],
    ok.

local_null_in_path(Config) ->
    Path = path(Config, "cut"),
    {ok, Listener} = listen(Config, 0, [{ifaddr, {local, <<Path/binary, 0, "rest">>}}]),
    ?assertEqual({ok, {local, Path}}, inet:sockname(Listener)).

local_unicode(Config) ->
    Path = binary_to_list(path(Config, "")) ++ [$/, 16#e5, 16#3b1],
    case file:native_name_encoding() of
        utf8 ->
            {ok, Listener} = listen(Config, 0, [{ifaddr, {local, Path}}]),
            ?assertEqual({ok, {local, unicode:characters_to_binary(Path)}}, inet:sockname(Listener));
        latin1 ->
            ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, {local, Path}}]))
    end.

local_port(Config) ->
    ?assertEqual(exit, what(fun() -> listen(Config, 5, [{ifaddr, where(Config)}]) end)),
    ?assertEqual(exit, what(fun() -> connect(Config, where(Config), 5, []) end)).

local_not_bound(Config) ->
    case proplists:get_value(drop_in, Config, false) of
        true ->
            ok;
        false ->
            ?assertEqual({error, einval}, listen(Config, 0, [])),
            ?assertEqual({error, einval}, listen(Config, 0, [{ip, any}]))
    end.

local_other_address(Config) ->
    case proplists:get_value(drop_in, Config, false) of
        true -> ok;
        false -> ?assertEqual(exit, what(fun() -> listen(Config, 0, [{ip, {127, 0, 0, 1}}]) end))
    end,
    {ok, Listener} = listen(Config, []),
    ?assertEqual(exit, what(fun() -> connect_to(Config, Listener, [{ip, {127, 0, 0, 1}}]) end)).

local_no_text(Config) ->
    [
        begin
            ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, {local, Wrong}}])),
            ?assertEqual(exit, what(fun() -> connect(Config, {local, Wrong}, 0, []) end))
        end
     || Wrong <- [foo, 17, [foo], [-1]]
    ],
    ok.

local_not_there(Config) ->
    ?assertEqual({error, enoent}, connect(Config, {local, path(Config, "nothing")}, 0, [])),
    ok = file:write_file(path(Config, "file"), <<>>),
    ?assertEqual({error, econnrefused}, connect(Config, {local, path(Config, "file")}, 0, [])),
    ?assertEqual({error, enoent}, listen(Config, 0, [{ifaddr, {local, path(Config, "nowhere/socket")}}])).

local_options_of_tcp(Config) ->
    {Connected, _} = pair(Config, [{nodelay, true}], [{nodelay, true}]),
    ?assertEqual({ok, [{active, true}]}, inet:getopts(Connected, [nodelay, tos, ttl, active, tclass])),
    ?assertEqual({error, einval}, inet:getopts(Connected, [pktoptions])),
    ?assertEqual(ok, inet:setopts(Connected, [{nodelay, true}])),
    ?assertEqual({error, einval}, inet:setopts(Connected, [{tos, 1}])),
    ?assertEqual({error, einval}, listen(Config, [{tos, 1}])).

%% Stock treats the socket as connected, which it is not.
local_full_backlog(Config) ->
    case proplists:get_value(backend, Config) of
        [] ->
            {skip, "a deliberate difference"};
        _ ->
            {ok, Listener} = listen(Config, [{backlog, 0}]),
            {ok, _} = connect_to(Config, Listener, []),
            ?assertEqual({error, eagain}, connect_to(Config, Listener, []))
    end.
