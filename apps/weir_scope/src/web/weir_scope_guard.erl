%% @doc Access control of the page: a request needs the token, and a Host that is an address or a known name.
-module(weir_scope_guard).

-export([new/2]).
-export([check/2]).
-export([check_host/2]).

-export_type([guard/0, verdict/0]).

-record(guard, {hash :: binary() | none, hosts :: [binary()]}).

-opaque guard() :: #guard{}.

-type verdict() :: ok | weir_http_direct:response().

%% @doc Makes a guard. It keeps only a hash of the token, so that no report or crash dump contains the token.
-spec new(binary() | none, [binary()]) -> guard().
new(Token, Hosts) ->
    #guard{
        hash =
            case Token of
                none -> none;
                _ -> crypto:hash(sha256, Token)
            end,
        hosts = [string:lowercase(Host) || Host <- Hosts]
    }.

%% @doc Checks a request for data. Returns `ok', or the response that refuses it.
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
    {reply, 401, [{<<"www-authenticate">>, <<"Bearer realm=\"weir_scope\"">>}, {<<"content-type">>, <<"text/plain">>}],
        "a token is needed\n"}.

%% @doc Checks the Host of a request. Other names that resolve to this machine are refused, so that a page of another
%% site cannot read the data by DNS rebinding. Returns `ok', or the response that refuses the request.
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
