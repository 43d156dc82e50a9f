%% Files of reactors and the disk: opening, reading, and data that is not in memory.
-module(weir_reactor_disk_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1]).
-import(weir_test_wait, [wait_until/1, recv_exactly/2]).
-import(reactor_probe, [start/1, stop/1, recv_all/1, exchange/2]).
-import(reactor_files, [file_of/2, open_files/1, part/3, write/3]).

-include("reactor_suite.hrl").

suite() -> [{timetrap, {minutes, 5}}].

all() -> [{group, disk}, {group, opening}].

groups() ->
    [
        {disk, [], [
            what_is_not_in_memory_is_read_first,
            a_file_system_that_cannot_tell,
            others_do_not_wait_for_a_disk,
            another_reader_goes_on
        ]},
        {opening, [], [
            what_is_no_file_is_not_opened,
            no_symbolic_link_is_followed_below_a_directory,
            a_file_is_read_in_parts,
            a_file_nobody_has_is_closed
        ]}
    ].

%%% Disks.

what_is_not_in_memory_is_read_first(Config) ->
    Bytes = rand:bytes(3000000),
    Path = write(Config, "file", Bytes),
    {ok, File, #{size := 3000000}} = weir_file:open(Path),
    {Reactor, Port} = start(#{
        data => fun(_Socket, _Data, State) -> {close, [<<"head">>, {sendfile, File, 0, 3000000}, <<"tail">>], State} end
    }),
    forget(Path),
    Before = waits(Reactor),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, <<"go">>),
    ?assert(<<"head", Bytes/binary, "tail">> =:= recv_all(Peer)),
    %% For most of the time the connection was not with the reactor, because the file was being read from disk.
    ?assert(waits(Reactor) > Before),
    stop(Reactor).

waits(Reactor) ->
    {ok, #{file_waits := Own}} = weir_reactor:info(Reactor),
    Own + lists:sum([N || #{file_waits := N} <- weir:pollsets()]).

%% Makes the kernel drop the file from the page cache.
forget(Path) ->
    [] = os:cmd("dd of='" ++ Path ++ "' oflag=nocache conv=notrunc,fdatasync count=0 status=none").

a_file_system_that_cannot_tell(Config) ->
    Path = "/dev/shm/weir_reactor_files_" ++ os:getpid(),
    case file:write_file(Path, rand:bytes(2500000)) of
        ok ->
            {ok, Bytes} = file:read_file(Path),
            {ok, File, _} = weir_file:open(Path),
            ok = file:delete(Path),
            {Reactor, Port} = start(#{
                data => fun(_Socket, _Data, State) -> {send, [{sendfile, File, 0, 2500000}], State} end
            }),
            Peer = connect_raw(Port),
            ok = gen_tcp:send(Peer, <<"go">>),
            ?assert(Bytes =:= recv_exactly(Peer, 2500000)),
            stop(Reactor),
            Config;
        {error, _} ->
            {skip, "no /dev/shm"}
    end.

%% The file reader is suspended, like a slow disk.
others_do_not_wait_for_a_disk(Config) ->
    Bytes = rand:bytes(1000000),
    Path = write(Config, "file", Bytes),
    {ok, File, _} = weir_file:open(Path),
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"file">>, State) -> {send, [{sendfile, File, 0, 1000000}], State};
        (_Socket, Data, State) -> {send, Data, State}
    end}),
    forget(Path),
    Before = waits(Reactor),
    Peer = connect_raw(Port),
    ok = sys:suspend(weir_reader),
    try
        ok = gen_tcp:send(Peer, <<"file">>),
        wait_until(fun() -> waits(Reactor) > Before end),
        [exchange(connect_raw(Port), <<"hello">>) || _ <- lists:seq(1, 10)],
        ?assertEqual({error, timeout}, gen_tcp:recv(Peer, 1, 0))
    after
        ok = sys:resume(weir_reader)
    end,
    ?assert(Bytes =:= recv_exactly(Peer, 1000000)),
    stop(Reactor).

another_reader_goes_on(Config) ->
    ok = weir_fastpath_test:new_engine(),
    Bytes = rand:bytes(1000000),
    Path = write(Config, "file", Bytes),
    {ok, File, _} = weir_file:open(Path),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {send, [{sendfile, File, 0, 1000000}], State} end}),
    forget(Path),
    Before = waits(Reactor),
    Peer = connect_raw(Port),
    Reader = whereis(weir_reader),
    ok = sys:suspend(Reader),
    try
        ok = gen_tcp:send(Peer, <<"go">>),
        wait_until(fun() -> waits(Reactor) > Before end)
    after
        exit(Reader, kill)
    end,
    ?assert(Bytes =:= recv_exactly(Peer, 1000000)),
    stop(Reactor).

%%% Opening.

what_is_no_file_is_not_opened(Config) ->
    Directory = ?config(priv_dir, Config),
    File = write(Config, "file", <<"x">>),
    Pipe = filename:join(filename:dirname(File), "pipe"),
    [] = os:cmd("mkfifo '" ++ Pipe ++ "'"),
    ?assertEqual({error, directory}, weir_file:open(Directory)),
    ?assertEqual({error, not_regular}, weir_file:open(Pipe)),
    ?assertEqual({error, not_regular}, weir_file:open("/dev/null")),
    ?assertEqual({error, enoent}, weir_file:open(File ++ "x")),
    ?assertEqual({error, enotdir}, weir_file:open(File ++ "/x")),
    ?assertEqual({error, einval}, weir_file:open(<<"a", 0, "b">>)),
    ?assertError(badarg, weir_file:open([-1])),
    ?assertMatch(
        {ok, _, #{size := 1, modified_ns := Ns}} when Ns > 1600000000 * 1000000000, weir_file:open(list_to_binary(File))
    ).

no_symbolic_link_is_followed_below_a_directory(Config) ->
    File = write(Config, "a/b/file", <<"inside">>),
    Directory = filename:dirname(filename:dirname(filename:dirname(File))),
    ok = file:make_symlink("b", filename:join([Directory, "a", "link"])),
    ok = file:make_symlink("file", filename:join([Directory, "a", "b", "link"])),
    ok = file:make_symlink(Directory, Directory ++ "-link"),
    Open = fun(Names) -> weir_file:open(Directory, Names) end,
    ?assertMatch({ok, _, #{size := 6}}, Open(["a", <<"b">>, "file"])),
    %% The directory itself may be a symbolic link.
    ?assertMatch({ok, _, #{size := 6}}, weir_file:open(Directory ++ "-link", ["a", <<"b">>, "file"])),
    ?assertEqual({error, not_regular}, Open(["a", "b", "link"])),
    ?assertEqual({error, enotdir}, Open(["a", "link", "file"])),
    ?assertEqual({error, directory}, Open(["a", "b"])),
    ?assertEqual({error, directory}, Open([])),
    [
        ?assertEqual({error, enoent}, Open(Names))
     || Names <- [["a", "..", "a", "b", "file"], ["a/b", "file"], ["a", "", "file"], ["."], ["a", "b", "."]]
    ],
    ?assertEqual({error, einval}, Open([<<"a", 0>>])).

a_file_is_read_in_parts(Config) ->
    {File, Bytes} = file_of(Config, 100000),
    ?assertEqual({ok, part(Bytes, 500, 1000)}, weir_file:read(File, 500, 1000)),
    ?assertEqual({ok, part(Bytes, 99990, 10)}, weir_file:read(File, 99990, 1000)),
    ?assertEqual({ok, <<>>}, weir_file:read(File, 100000, 1000)),
    ?assertEqual({ok, <<>>}, weir_file:read(File, 0, 0)),
    [
        ?assertError(badarg, weir_file:read(F, O, L))
     || {F, O, L} <- [{make_ref(), 0, 1}, {File, -1, 1}, {File, 0, 1 bsl 25}, {File, 1 bsl 63, 1}]
    ].

a_file_nobody_has_is_closed(Config) ->
    Path = write(Config, "file", <<"x">>),
    Holder = spawn_link(fun() ->
        {ok, File, _} = weir_file:open(Path),
        receive stop -> File end
    end),
    wait_until(fun() -> open_files(Path) =:= 1 end),
    Holder ! stop,
    wait_until(fun() -> open_files(Path) =:= 0 end).
