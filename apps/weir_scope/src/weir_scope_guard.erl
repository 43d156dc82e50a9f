%% @doc Who may ask: those with the token, by an address or a known name.
-module(weir_scope_guard).

-export([new/2]).
-export([check/2]).
-export([check_host/2]).

-export_type([guard/0, verdict/0]).

-record(guard, {hash :: binary() | none, hosts :: [binary()]}).

-opaque guard() :: #guard{}.

-type verdict() :: ok | weir_http_direct:response().

%% @doc Of the token only a hash is kept, so that no report or crash dump has it from here.
-spec new(binary() | none, [binary()]) -> guard().
new(Token, Hosts) ->
    #guard{hash = case Token of none -> none; _ -> crypto:hash(sha256, Token) end, hosts = [string:lowercase(Host) || Host <- Hosts]}.

%% @doc Whether a request for data may be answered.
-spec check(weir_http_request:request(), guard()) -> verdict().
check(Request, #guard{hash = Hash} = Guard) ->
    case check_host(Request, Guard) of
        ok when Hash =:= none -> ok;
        ok -> check_token(weir_http_request:field(<<"authorization">>, Request, <<>>), Hash);
        Refused -> Refused
    end.

%% Hashes have one length, and are compared in constant time.
check_token(<<"Bearer ", Token/binary>>, Hash) ->
    case crypto:hash_equals(crypto:hash(sha256, Token), Hash) of
        true -> ok;
        false -> unauthorized()
    end;
check_token(_, _Hash) ->
    unauthorized().

unauthorized() ->
    {reply, 401, [{<<"www-authenticate">>, <<"Bearer realm=\"weir_scope\"">>}, {<<"content-type">>, <<"text/plain">>}], "a token is needed\n"}.

%% @doc Whether the Host is one of ours. A name that somebody else has pointed to this machine is not: else a page of theirs could
%% read what is shown.
-spec check_host(weir_http_request:request(), guard()) -> verdict().
check_host(Request, #guard{hosts = Hosts}) ->
    Host = string:lowercase(without_port(weir_http_request:field(<<"host">>, Request, <<>>))),
    case Host =:= <<"localhost">> orelse is_address(Host) orelse lists:member(Host, Hosts) of
        true -> ok;
        false -> {reply, 421, [{<<"content-type">>, <<"text/plain">>}], "unknown host: see the option hosts\n"}
    end.

without_port(<<"[", Rest/binary>>) -> hd(binary:split(Rest, <<"]">>));
without_port(Host) -> hd(binary:split(Host, <<":">>)).

is_address(Host) -> element(1, inet:parse_strict_address(binary_to_list(Host))) =:= ok.
