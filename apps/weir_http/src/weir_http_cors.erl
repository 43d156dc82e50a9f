%% @doc Which pages of other origins may use a route: the fields of CORS (the Fetch standard, 3.2).
%%
%% ```
%% {"/api/*path", api, [], #{cors => #{origins => [<<"https://example.org">>], credentials => true}}}
%% '''
%%
%% The server answers a browser that asks before it sends (a preflight) from the option of the route for the method that is asked
%% for, and adds the fields to each response of the route, also to those of failures. The handler still decides whether it
%% does what it is asked: CORS only says who may read the answer.
-module(weir_http_cors).

-export([new/1]).
-export([fields/2]).
-export([is_preflight/1]).
-export([preflight/2]).

-export_type([options/0, cors/0]).

-type options() :: #{
    origins := any | [binary()],
    headers => any | [binary()],
    expose => [binary()],
    credentials => boolean(),
    max_age => non_neg_integer()
}.
%% `origins': those that a browser may let read, byte by byte as it says them, or `any'. `headers' (`[]'): fields that a page may
%% set, or `any'. `expose' (`[]'): fields of the response that it may read. `credentials' (`false'): whether cookies and the like are
%% sent; not with `any' origin, since then any site could act for users who are logged in. `max_age' (600): seconds for which a browser need not ask again.

-record(cors, {
    origins :: any | [binary()],
    headers :: any | binary(),
    expose :: binary(),
    credentials :: boolean(),
    max_age :: binary()
}).

-opaque cors() :: #cors{}.

-define(METHOD, <<"access-control-request-method">>).
-define(HEADERS, <<"access-control-request-headers">>).

%% @private
%% @doc Checks options, and makes of them what is looked at with each request.
-spec new(term()) -> {ok, cors()} | {error, Value :: term(), Allowed :: string()}.
new(#{origins := any, credentials := true} = Options) ->
    {error, Options, "a list of origins with credentials => true: any site could act for users who are logged in"};
new(#{origins := Origins} = Options) ->
    case [Option || Option <- maps:to_list(Options), not is_option(Option)] of
        [] ->
            {ok, #cors{
                origins = Origins,
                headers = joined(maps:get(headers, Options, [])),
                expose = joined(maps:get(expose, Options, [])),
                credentials = maps:get(credentials, Options, false),
                max_age = integer_to_binary(maps:get(max_age, Options, 600))
            }};
        [Wrong = {Name, _} | _] ->
            {error, Wrong, allowed(Name)}
    end;
new(Wrong) ->
    {error, Wrong, "a map with origins => any, or a list of origins"}.

joined(any) -> any;
joined(Names) -> iolist_to_binary(lists:join(", ", Names)).

is_option({origins, any}) -> true;
is_option({origins, Origins}) -> is_list(Origins) andalso lists:all(fun is_origin/1, Origins);
is_option({headers, any}) -> true;
is_option({headers, Names}) -> is_names(Names);
is_option({expose, Names}) -> is_names(Names);
is_option({credentials, Credentials}) -> is_boolean(Credentials);
is_option({max_age, Seconds}) -> is_integer(Seconds) andalso Seconds >= 0;
is_option(_) -> false.

%% As a browser says it, byte by byte: anything else would never match.
is_origin(<<"null">>) -> true;
is_origin(Origin) when is_binary(Origin) -> re:run(Origin, "^[a-z][a-z0-9+.-]*://[^/?#A-Z\\s]+$", [dollar_endonly]) =/= nomatch;
is_origin(_) -> false.

is_names(Names) ->
    is_list(Names) andalso
        lists:all(fun(Name) -> is_binary(Name) andalso re:run(Name, "^[A-Za-z0-9_-]+$", [dollar_endonly]) =/= nomatch end, Names).

allowed(origins) -> "any, or a list of origins such as <<\"https://example.org\">>, in lower case and without a path";
allowed(headers) -> "any, or a list of names of fields";
allowed(expose) -> "a list of names of fields";
allowed(credentials) -> "true or false";
allowed(max_age) -> "seconds from 0 on";
allowed(_) -> "unknown option; valid: origins, headers, expose, credentials, max_age".

%% @private
%% @doc What a response to a request has.
-spec fields(weir_http_request:request(), cors()) -> [{binary(), binary()}].
fields(Request, Cors = #cors{expose = Expose}) ->
    case allowed(weir_http_request:field(<<"origin">>, Request), Cors) of
        [] -> vary(Cors);
        Allowed -> vary(Cors) ++ Allowed ++ [{<<"access-control-expose-headers">>, Expose} || Expose =/= <<>>]
    end.

allowed(undefined, _Cors) ->
    [];
allowed(_Origin, #cors{origins = any}) ->
    [{<<"access-control-allow-origin">>, <<"*">>}];
allowed(Origin, #cors{origins = Origins, credentials = Credentials}) ->
    case lists:member(Origin, Origins) of
        true ->
            [{<<"access-control-allow-origin">>, Origin}
                | [{<<"access-control-allow-credentials">>, <<"true">>} || Credentials]];
        false ->
            []
    end.

%% One who keeps the response for others has to know that it is not for all, also when it has no Origin.
vary(#cors{origins = any}) -> [];
vary(#cors{}) -> [{<<"vary">>, <<"origin">>}].

%% @private
%% @doc Whether a request asks whether another may be made; of what method.
-spec is_preflight(weir_http_request:request()) -> {true, Method :: binary()} | false.
is_preflight(Request) ->
    Has = weir_http_request:method(Request) =:= <<"OPTIONS">> andalso weir_http_request:field(<<"origin">>, Request) =/= undefined,
    case Has andalso weir_http_request:field(?METHOD, Request) of
        Method when is_binary(Method) -> {true, Method};
        _ -> false
    end.

%% @private
%% @doc The answer to one.
-spec preflight(weir_http_request:request(), cors()) -> [{binary(), binary()}].
preflight(Request, Cors = #cors{headers = Headers, max_age = MaxAge}) ->
    Vary = [{<<"vary">>, <<"origin, ", ?METHOD/binary, ", ", ?HEADERS/binary>>}],
    case allowed(weir_http_request:field(<<"origin">>, Request), Cors) of
        [] ->
            Vary;
        Allowed ->
            Names =
                case Headers of
                    any -> weir_http_request:field(?HEADERS, Request, <<>>);
                    _ -> Headers
                end,
            Vary ++ Allowed ++
                [{<<"access-control-allow-methods">>, weir_http_request:field(?METHOD, Request)},
                    {<<"access-control-max-age">>, MaxAge}
                    | [{<<"access-control-allow-headers">>, Names} || Names =/= <<>>]]
    end.
