%% @doc Weir for a whole VM: all programs in it use Weir's sockets, without a change.
%%
%% If a program names no TCP module, gen_tcp asks the kernel for the module of the VM. A line `{tcp, weir_tcp}.' in
%% the kernel's inetrc file sets it before the first application starts; {@link use/0} sets it in a running VM.
%% `bin/weir exec' does the first, and the second at the end of the boot.
%%
%% For a bare `inet', `inet6' or `local' among the options, gen_tcp takes the family's module from a constant of OTP's
%% `inet'. {@link use_for_families/0} loads a copy of this VM's `inet' whose constant names Weir's modules; nothing
%% else differs.
%%
%% Distribution has its own sockets (`inet_tcp_dist'), which neither affects.
-module(weir_vm).

-export([use/0]).
-export([use_for_families/0]).
-export([unsuited/0]).
-export([start/1]).

%% The constant, and its replacement.
-define(FAMILIES, #{inet => inet_tcp, inet6 => inet6_tcp, local => local_tcp}).
-define(FAMILIES_OF_WEIR, #{inet => weir_tcp, inet6 => weir_tcp6, local => weir_local}).

%% Applications that treat a socket as a port, each with the module that does: it has an is_port/1 guard or calls
%% erlang:port_command/2, and Weir's sockets are not ports.
-define(UNSUITED, [
    {"RabbitMQ", rabbit_net},
    {"EMQX and other servers on esockd", esockd_transport},
    {"emqtt", emqtt_sock},
    {"SOCKS proxies of hackney", hackney_socks5}
]).

%% @doc Makes programs that name no TCP module use Weir's sockets from now on.
-spec use() -> ok.
use() ->
    inet_db:set_tcp_module(weir_tcp).

%% @doc Makes programs that name a family use Weir's sockets too from now on. `{error, unknown_inet}': the `inet' of
%% this OTP does not contain the constant, and nothing was changed.
-spec use_for_families() -> ok | {error, unknown_inet | term()}.
use_for_families() ->
    maybe_load(code:get_object_code(inet)).

%% @doc Returns the applications in the code path that are known not to work on Weir's sockets, each with the module
%% at fault. They treat a socket as a port: their connections fail, or are closed at once. Run them in a node with
%% OTP's sockets.
%%
%% Other applications may be unsuited too: search them for `is_port', `port_command' and `port_info'.
-spec unsuited() -> [{Application :: string(), module()}].
unsuited() ->
    [Known || {_Application, Module} = Known <- ?UNSUITED, code:which(Module) =/= non_existing].

maybe_load({inet, Beam, File}) ->
    case with_families(Beam) of
        {ok, Changed} -> load(Changed, File);
        Error -> Error
    end;
maybe_load(error) ->
    {error, unknown_inet}.

%% The kernel's directory is sticky, which protects its modules from replacement.
load(Beam, File) ->
    Directory = filename:dirname(File),
    _ = code:unstick_dir(Directory),
    try code:load_binary(inet, File, Beam) of
        {module, inet} -> ok;
        Error -> Error
    after
        code:stick_dir(Directory)
    end.

with_families(Beam) ->
    {chunks, Known} = lists:keyfind(chunks, 1, beam_lib:info(Beam)),
    {ok, {inet, Chunks}} = beam_lib:chunks(Beam, [Id || {Id, _Position, _Size} <- Known]),
    case lists:keytake("LitT", 1, Chunks) of
        {value, {_, Chunk}, Others} ->
            Literals = literals(Chunk),
            case lists:splitwith(fun(Literal) -> Literal =/= ?FAMILIES end, Literals) of
                {Before, [_ | After]} ->
                    Changed = Before ++ [?FAMILIES_OF_WEIR | After],
                    beam_lib:build_module([{"LitT", literals_chunk(Changed)} | Others]);
                {Literals, []} ->
                    {error, unknown_inet}
            end;
        false ->
            {error, unknown_inet}
    end.

%% Compressed until OTP 27. Later releases mark uncompressed literals by a size of 0.
literals(<<0:32, Terms/binary>>) -> terms(Terms);
literals(<<_Size:32, Compressed/binary>>) -> terms(zlib:uncompress(Compressed)).

terms(<<_Count:32, Terms/binary>>) ->
    [binary_to_term(Term) || <<Size:32, Term:Size/binary>> <= Terms].

%% All releases read the compressed form.
literals_chunk(Literals) ->
    Terms = [<<(byte_size(Term)):32, Term/binary>> || Literal <- Literals, Term <- [term_to_binary(Literal)]],
    Table = iolist_to_binary([<<(length(Literals)):32>> | Terms]),
    <<(byte_size(Table)):32, (zlib:compress(Table))/binary>>.

%% @private
%% @doc The function of `erl -s weir_vm start default|families', which runs at the end of the boot. Until then the
%% program's own inetrc may have set another module.
-spec start([default | families]) -> ok.
start([Which]) ->
    ok = weir_reports:let_through(),
    case inet_db:tcp_module() of
        weir_tcp ->
            ok;
        Other ->
            ok = weir_reports:log(warning, #{
                what =>
                    "this VM has an inetrc of its own, so sockets opened before now are not Weir's. Add {tcp,"
                    " weir_tcp}. to that file",
                tcp_module => Other
            }),
            use()
    end,
    families(Which),
    lists:foreach(
        fun({Application, Module}) ->
            ok = weir_reports:log(warning, #{
                what => Application ++ " will not work in this VM: it treats sockets as ports. Run it without Weir",
                module => Module
            })
        end,
        unsuited()
    ),
    weir_reports:log(info, #{what => "weir_tcp is the TCP module of this VM"}).

families(default) ->
    ok;
families(families) ->
    case use_for_families() of
        ok ->
            ok;
        {error, Reason} ->
            weir_reports:log(warning, #{what => "sockets of a bare inet, inet6 or local are OTP's", reason => Reason})
    end.
