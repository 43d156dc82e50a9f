%% OTP's ssh, on OTP's sockets and on Weir's, with its own client and OpenSSH's.
-module(weir_with_ssh_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("public_key/include/public_key.hrl").

-export([all/0, groups/0, suite/0]).
-export([init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    the_listening_socket_is_the_one_under_test/1,
    otp_runs_a_command/1,
    otp_fetches_a_file/1,
    openssh_runs_a_command/1
]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [{group, stock}, {group, weir}].

groups() ->
    Cases = [
        the_listening_socket_is_the_one_under_test,
        otp_runs_a_command,
        otp_fetches_a_file,
        openssh_runs_a_command
    ],
    [{stock, [], Cases}, {weir, [], Cases}].

init_per_suite(Config) ->
    case weir_with:needs([ssh], Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            {ok, _} = application:ensure_all_started(ssh),
            write_keys(?config(priv_dir, Config)),
            Config
    end.

end_per_suite(_Config) ->
    application:stop(ssh).

init_per_group(Backend, Config) ->
    weir_with:init_group(Backend, Config).

end_per_group(_Backend, _Config) ->
    ok.

end_per_testcase(_Case, _Config) ->
    [ok = ssh:stop_daemon(Daemon) || Daemon <- [erase(daemon)], Daemon =/= undefined],
    weir_with:nothing_left().

%% Cases

the_listening_socket_is_the_one_under_test(Config) ->
    with_daemon(Config, fun(Port) ->
        ?assertEqual(?config(on, Config) =:= weir, weir_with:on_weir(Port))
    end).

otp_runs_a_command(Config) ->
    with_daemon(Config, fun(Port) ->
        Connection = connect(Config, Port),
        {ok, Channel} = ssh_connection:session_channel(Connection, weir_test_wait:patience()),
        success = ssh_connection:exec(Connection, Channel, "question", weir_test_wait:patience()),
        ?assertMatch(<<"42", _/binary>>, output(Connection, Channel)),
        ok = ssh:close(Connection)
    end).

otp_fetches_a_file(Config) ->
    Directory = ?config(priv_dir, Config),
    Data = weir_with:bytes(1_000_000),
    with_daemon(Config, fun(Port) ->
        Connection = connect(Config, Port),
        {ok, Channel} = ssh_sftp:start_channel(Connection),
        Name = filename:join(Directory, "data.bin"),
        ok = ssh_sftp:write_file(Channel, Name, Data),
        ?assertEqual({ok, sum(Data)}, summed(file:read_file(Name))),
        ?assertEqual({ok, sum(Data)}, summed(ssh_sftp:read_file(Channel, Name))),
        ok = ssh_sftp:stop_channel(Channel),
        ok = ssh:close(Connection)
    end).

openssh_runs_a_command(Config) ->
    case weir_with:needs(["ssh"], Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            with_daemon(Config, fun(Port) ->
                Key = filename:join([?config(priv_dir, Config), "user", "id_ecdsa"]),
                {0, Output} = weir_with:program("ssh", [
                    "-F", "none", "-p", integer_to_list(Port), "-i", Key,
                    "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
                    "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
                    "user@127.0.0.1", "question"
                ]),
                ?assertMatch(<<"42", _/binary>>, Output)
            end)
    end.

%% Both sides

with_daemon(Config, Fun) ->
    Directory = ?config(priv_dir, Config),
    {ok, Daemon} = ssh:daemon({127, 0, 0, 1}, 0, ?config(backend, Config) ++ [
        {system_dir, filename:join(Directory, "system")},
        {user_dir, filename:join(Directory, "user")},
        {auth_methods, "publickey"},
        %% Later releases disable both by default.
        {exec, {direct, fun("question") -> {ok, 42} end}},
        {subsystems, [ssh_sftpd:subsystem_spec([])]}
    ]),
    put(daemon, Daemon),
    {ok, Information} = ssh:daemon_info(Daemon),
    Fun(proplists:get_value(port, Information)).

connect(Config, Port) ->
    {ok, Connection} = ssh:connect({127, 0, 0, 1}, Port, ?config(backend, Config) ++ [
        {user, "user"},
        {user_dir, filename:join(?config(priv_dir, Config), "user")},
        {silently_accept_hosts, true},
        {user_interaction, false}
    ], weir_test_wait:patience()),
    Connection.

output(Connection, Channel) ->
    receive
        {ssh_cm, Connection, {data, Channel, _, Data}} -> <<Data/binary, (output(Connection, Channel))/binary>>;
        {ssh_cm, Connection, {closed, Channel}} -> <<>>;
        {ssh_cm, Connection, _} -> output(Connection, Channel)
    after weir_test_wait:patience() -> ct:fail(no_output)
    end.

sum(Data) -> crypto:hash(sha256, Data).

summed({ok, Data}) -> {ok, sum(Data)};
summed(Error) -> Error.

%% Writes a host key, and a key of a user who may log in.
write_keys(Directory) ->
    [ok = filelib:ensure_path(filename:join(Directory, Name)) || Name <- ["system", "user"]],
    _ = write_key(filename:join([Directory, "system", "ssh_host_ecdsa_key"])),
    #'ECPrivateKey'{publicKey = Point, parameters = Curve} = write_key(filename:join([Directory, "user", "id_ecdsa"])),
    Line = ssh_file:encode([{{#'ECPoint'{point = Point}, Curve}, [{comment, "user"}]}], auth_keys),
    ok = file:write_file(filename:join([Directory, "user", "authorized_keys"]), Line).

write_key(Name) ->
    Key = public_key:generate_key({namedCurve, secp256r1}),
    Pem = public_key:pem_encode([public_key:pem_entry_encode('ECPrivateKey', Key)]),
    ok = file:write_file(Name, Pem),
    ok = file:change_mode(Name, 8#600),
    Key.
